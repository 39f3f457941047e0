//! Real programs, and the ways in which they refuse to end.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rustix::process::{Pid, test_kill_process};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use super::*;

fn shell(script: &str) -> Invocation {
    let inherited = [("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())];
    Invocation {
        program: "sh".into(),
        arguments: vec!["-c".into(), script.into()],
        directory: "/tmp".into(),
        environment: environment(inherited, &BTreeMap::new()),
        confinement: None,
    }
}

fn limits(timeout_ms: u64) -> RunLimits {
    RunLimits { timeout: Duration::from_millis(timeout_ms), output_bytes_max: 50_000 }
}

async fn run_shell(script: &str, timeout_ms: u64) -> (Finished, Duration) {
    let begin = Instant::now();
    let finished = run(&shell(script), limits(timeout_ms), &CancellationToken::new()).await.unwrap();
    (finished, begin.elapsed())
}

fn alive(id: &str) -> bool {
    let id: i32 = id.trim().parse().unwrap();
    let zombie = || std::fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|s| s.contains(") Z "));
    test_kill_process(Pid::from_raw(id).unwrap()).is_ok() && !zombie()
}

/// Waits until it is gone; a signal takes a moment to be acted on.
fn gone(id: &str) -> bool {
    (0..4000).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        !alive(id)
    })
}

#[tokio::test]
async fn endings_and_the_order_of_both_streams() {
    let table = [
        ("echo a; echo b >&2; echo c", Ending::Exited(0), "a\nb\nc\n"),
        ("printf x; exit 3", Ending::Exited(3), "x"),
        ("kill -9 $$", Ending::Signalled(9), ""),
        ("cat; echo end of input", Ending::Exited(0), "end of input\n"),
        ("printf '%s' \"$TERM $PAGER $NO_COLOR\"", Ending::Exited(0), "dumb cat 1"),
    ];
    for (script, ending, output) in table {
        let (finished, _) = run_shell(script, 10_000).await;
        assert_eq!((finished.ending, finished.output.text().as_str()), (ending, output), "{script}");
    }
}

/// A program that has our terminal can read what is typed there, and type into it.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_program_leads_a_session_without_a_terminal() {
    // Its number, its group's, its session's, its terminal.
    let script = "read -r own _ _ _ group session terminal _ < /proc/self/stat; \
        test $own = $group && test $own = $session && test $terminal = 0 && ! (: < /dev/tty) 2> /dev/null && echo leads";
    let (finished, _) = run_shell(script, 10_000).await;
    assert_eq!(finished.output.text(), "leads\n");
    let mut program = spawn(&shell(script)).unwrap();
    let mut said = String::new();
    program.stdout.take().unwrap().read_to_string(&mut said).await.unwrap();
    assert_eq!(said, "leads\n");
}

#[tokio::test]
async fn what_cannot_be_started_is_said() {
    let no_program = Invocation { program: "no-such-program".into(), ..shell("") };
    let no_directory = Invocation { directory: "/no/such".into(), ..shell("") };
    let table = [
        (no_program, "no program no-such-program in PATH"),
        (no_directory, "cannot start sh in /no/such: not a directory"),
    ];
    for (invocation, want) in table {
        let error = run(&invocation, limits(1000), &CancellationToken::new()).await.unwrap_err();
        assert_eq!(error.to_string(), want);
    }
}

#[tokio::test]
async fn returns_when_the_shell_ends() {
    for script in ["sleep 20 & echo started", "setsid sleep 20 & echo started", "(sleep 20; echo late) & echo started"]
    {
        let (finished, took) = run_shell(script, 10_000).await;
        assert_eq!((finished.ending, finished.output.text().as_str()), (Ending::Exited(0), "started\n"), "{script}");
        assert!(took < Duration::from_secs(8), "{script} took {took:?}");
    }
}

#[tokio::test]
async fn a_time_out_ends_everything_and_keeps_the_output() {
    let table = [
        "echo $$; sleep 60",
        "sleep 60 & echo $!; wait",
        "trap '' TERM; echo $$; while :; do sleep 1; done",
        "setsid sh -c 'echo $$; exec sleep 60' & wait",
        "setsid sh -c 'trap \"\" TERM; (sleep 60 & echo $!)' & sleep 60",
        "sh -c 'sleep 60 & echo $!; wait' | cat",
    ];
    for script in table {
        let (finished, took) = run_shell(script, 300).await;
        assert_eq!(finished.ending, Ending::TimedOut, "{script}");
        assert!(took < Duration::from_secs(8), "{script} took {took:?}");
        assert!(gone(&finished.output.text()), "{script} still runs");
    }
}

#[tokio::test]
async fn what_is_written_while_tidying_up_is_kept() {
    let (finished, took) = run_shell("trap 'echo bye; exit' TERM; echo hi; sleep 60 & wait", 200).await;
    assert_eq!((finished.ending, finished.output.text().as_str()), (Ending::TimedOut, "hi\nbye\n"));
    assert!(took < Duration::from_secs(8));
}

#[tokio::test]
async fn cancellation_ends_the_group() {
    let marker = tempfile::tempdir().unwrap();
    let started = marker.path().join("started");
    let invocation = shell(&format!("sleep 60 & echo $! > {0}.tmp; mv {0}.tmp {0}; wait", started.display()));
    let cancel = CancellationToken::new();
    let running = tokio::spawn({
        let cancel = cancel.clone();
        async move { run(&invocation, limits(60_000), &cancel).await }
    });
    while !started.exists() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let begin = Instant::now();
    cancel.cancel();
    assert_eq!(running.await.unwrap().unwrap().ending, Ending::Cancelled);
    assert!(begin.elapsed() < Duration::from_secs(8));
    assert!(gone(&std::fs::read_to_string(started).unwrap()));
}

#[tokio::test]
async fn a_dropped_run_ends_the_group() {
    let marker = tempfile::tempdir().unwrap();
    let started = marker.path().join("started");
    let script = format!("setsid sh -c 'echo $$ > {0}.tmp; mv {0}.tmp {0}; exec sleep 60' & wait", started.display());
    let running = tokio::spawn(async move { run_shell(&script, 60_000).await });
    while !started.exists() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    let id = std::fs::read_to_string(started).unwrap();
    assert!(tokio::task::spawn_blocking(move || gone(&id)).await.unwrap());
}

#[tokio::test]
async fn a_hundred_megabytes_in_bounded_memory() {
    let (finished, _) = run_shell("head -c 104857600 /dev/zero | tr '\\0' x; echo; echo the end", 60_000).await;
    assert_eq!(finished.ending, Ending::Exited(0));
    assert_eq!(finished.output.total_bytes(), 104_857_600 + 9);
    let text = finished.output.text();
    assert!(
        text.len() < 50_200
            && text.starts_with("xxx")
            && text.contains("\nthe end\n\n[truncated: 104857609 bytes total")
    );
}

#[tokio::test]
async fn an_endless_writer_is_stopped_too() {
    let (finished, took) = run_shell("yes", 300).await;
    assert_eq!(finished.ending, Ending::TimedOut);
    assert!(finished.output.is_cut() && took < Duration::from_secs(8));
    let (finished, took) = run_shell("yes & echo", 10_000).await;
    assert_eq!(finished.ending, Ending::Exited(0));
    assert!(took < Duration::from_secs(8));
}

#[tokio::test]
async fn a_piped_program_is_talked_to_and_stopped() {
    let mut piped = spawn(&shell("read line; echo \"got $line\"; sleep 60 & echo $!; wait")).unwrap();
    piped.stdin.as_mut().unwrap().write_all(b"hello\n").await.unwrap();
    let mut output = String::new();
    let mut stdout = piped.stdout.take().unwrap();
    while output.lines().count() < 2 || !output.ends_with('\n') {
        let mut chunk = [0; 100];
        let count = stdout.read(&mut chunk).await.unwrap();
        output.push_str(std::str::from_utf8(&chunk[..count]).unwrap());
    }
    let child = output.strip_prefix("got hello\n").unwrap();
    let begin = Instant::now();
    piped.stop(Duration::from_millis(50)).await;
    assert!(begin.elapsed() < Duration::from_secs(8));
    assert!(gone(child));
}
