//! Consoles and their table.

use super::*;

fn shell(script: &str) -> Invocation {
    Invocation {
        program: "/bin/sh".into(),
        arguments: vec!["-c".into(), script.into()],
        directory: "/".into(),
        environment: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
        confinement: None,
    }
}

fn start(script: &str, on_terminal: bool) -> Arc<Console> {
    Console::start(&shell(script), on_terminal.then(TerminalSize::default), script).unwrap()
}

const LONG: Duration = Duration::from_secs(20);

/// Takes until `sign` has come.
async fn until(console: &Console, sign: &str) -> String {
    let mut all = String::new();
    let reading = async {
        while !all.contains(sign) {
            all.push_str(&console.take().head);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LONG, reading).await.unwrap();
    all
}

#[cfg(target_os = "linux")]
async fn is_gone(id: &str) {
    let stat = format!("/proc/{}/stat", id.trim());
    let gone = async {
        while std::fs::read_to_string(&stat).is_ok_and(|text| !text.contains(") Z ")) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LONG, gone).await.unwrap();
}

#[tokio::test]
async fn its_end_comes_with_all_that_it_wrote() {
    for on_terminal in [false, true] {
        let console = start("seq 1 20000; printf 'ä'; exit 7", on_terminal);
        assert_eq!(console.wait(LONG).await, Some(Ending::Exited(7)));
        let read = console.take();
        assert_eq!(read.omitted_bytes, 0);
        assert!(read.head.starts_with("1\n2\n") && read.head.ends_with("20000\nä"), "{:?}", read.head.len());
        assert_eq!(console.take(), Piece::default());
    }
}

#[tokio::test]
async fn a_flood_stays_bounded_and_can_be_ended() {
    let console = start("yes 0123456789", true);
    while console.shared.unread.lock().take(false).bytes < 1 {
        tokio::task::yield_now().await;
    }
    // However slow it is: between two looks that are far enough apart more comes than is kept.
    let mut pause = Duration::from_millis(300);
    loop {
        tokio::time::sleep(pause).await;
        let read = console.take();
        assert!(read.head.len() + read.tail.len() <= limit::CONSOLE_OUTPUT_BYTES_MAX);
        assert_eq!(read.omitted_bytes > 0, read.bytes > limit::CONSOLE_OUTPUT_BYTES_MAX as u64, "{}", read.bytes);
        if read.omitted_bytes > 0 {
            break;
        }
        assert!(pause < LONG, "{}", read.bytes);
        pause *= 2;
    }
    console.end().await;
    assert_eq!(console.ending(), Some(Ending::Signalled(15)));
    assert_eq!(console.write(b"x", Instant::now() + LONG).await, None);
    assert!(console.resize(TerminalSize::default()).is_none());
}

#[tokio::test]
async fn what_it_leaves_behind_does_not_hold_its_end_up() {
    let console = start("sleep 600 & echo $!", false);
    assert_eq!(console.wait(LONG).await, Some(Ending::Exited(0)));
    let id = console.take().head;
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(id.trim().parse().unwrap()).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
}

#[tokio::test]
async fn typing_stops_where_nobody_reads() {
    let console = start("stty raw -echo; echo ready; sleep 600", true);
    until(&console, "ready").await;
    let much = vec![b'x'; 1 << 20];
    let typed = console.write(&much, Instant::now() + Duration::from_millis(200)).await.unwrap();
    assert!(typed > 0 && typed < much.len(), "{typed}");
    console.end().await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_dropped_console_ends_its_program_and_what_that_started() {
    for on_terminal in [false, true] {
        let console = start("setsid sleep 600 & echo $! $$; wait", on_terminal);
        let told = until(&console, "\n").await;
        drop(console);
        for id in told.split_whitespace() {
            is_gone(id).await;
        }
    }
}

#[tokio::test]
async fn numbers_begin_at_1000_and_what_is_gone_is_told() {
    let consoles = Consoles::default();
    assert_eq!(consoles.get("1000").unwrap_err().to_string(), "session 1000 is not known; there are none");
    let first = start("exit 3", false);
    assert_eq!(consoles.add(Arc::clone(&first)), ("1000".to_owned(), None));
    assert_eq!(consoles.add(start("sleep 600", false)).0, "1001");
    assert!(Arc::ptr_eq(&consoles.get("1000").unwrap(), &first));
    consoles.remove("1000", 3);
    let said = consoles.get("1000").unwrap_err().to_string();
    assert_eq!(said, "session 1000 has ended with exit code 3, and its output was read; there are 1001 (`sleep 600`)");
    assert!(consoles.get("ä").is_err());
    consoles.end_all().await;
    assert!(consoles.is_empty());
    assert_eq!(consoles.add(start("exit", false)).0, "1002", "no number comes twice");
}

#[tokio::test]
async fn the_one_nobody_looked_at_goes_and_the_newest_stay() {
    let consoles = Consoles::default();
    let all: Vec<Arc<Console>> = (0..limit::CONSOLES_MAX).map(|_| start("sleep 600", false)).collect();
    let ids: Vec<String> = all.iter().map(|console| consoles.add(Arc::clone(console)).0).collect();
    // The oldest is looked at; then the second oldest has to go.
    consoles.get(&ids[0]).unwrap();
    assert_eq!(consoles.add(start("sleep 600", false)).1, Some(ids[1].clone()));
    assert_eq!(all[1].wait(LONG).await.and_then(Ending::code), Some(143));
    assert!(consoles.get(&ids[1]).unwrap_err().to_string().contains("was ended to make room: at most 64 are kept"));
    // One that has ended goes before all that run.
    all[40].end().await;
    assert_eq!(consoles.add(start("sleep 600", false)).1, Some(ids[40].clone()));
    // Unless it is among the newest.
    let newest = &ids[limit::CONSOLES_MAX - 1];
    all[limit::CONSOLES_MAX - 1].end().await;
    assert_eq!(consoles.add(start("sleep 600", false)).1, Some(ids[2].clone()), "{newest} is among the newest");
    assert_eq!(consoles.len(), limit::CONSOLES_MAX);
    consoles.end_all().await;
}
