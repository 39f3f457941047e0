//! What the programs of one session see and reach of each other, and how all of them end.

use std::time::Instant;

use super::*;
use crate::base::process::{TerminalSize, follow};

const LONG: Duration = Duration::from_secs(20);

impl Place {
    /// Runs a script in the room, and says what it wrote.
    async fn says(&self, script: &str) -> String {
        let finished = self.run(self.policy(Level::WorkspaceWrite, false), script, Vec::new()).await;
        finished.output.text()
    }
}

/// The numbers out here of what runs with these words in its command line.
fn running(words: &str) -> Vec<String> {
    let ids = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let runs = |id: &String| {
        let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).replace('\0', " ").contains(words)
    };
    ids.filter(|id| id.parse::<u32>().is_ok() && runs(id)).collect()
}

async fn gone(words: &str) {
    let gone = async {
        while !running(words).is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, gone).await.unwrap_or_else(|_| panic!("{words} still runs: {:?}", running(words)));
}

#[tokio::test]
async fn a_later_program_ends_what_an_earlier_one_left_running() {
    if !all_there() {
        return;
    }
    for network in [false, true] {
        let place = Place::with_rooms();
        let run = async |script: &str| {
            let policy = place.policy(Level::WorkspaceWrite, network);
            place.run(policy, script, Vec::new()).await.output.text()
        };
        assert_eq!(run("sleep 5001 >/dev/null 2>&1 & echo $! > pid; setsid sleep 5001 >/dev/null 2>&1 &").await, "");
        // One that is on its way to be another program has no words for a moment.
        let both = async {
            while running("sleep 5001").len() != 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LONG, both).await.unwrap();
        assert_eq!(run("kill -0 $(cat pid) && kill $(cat pid) && echo sent").await, "sent\n");
        let rest =
            "for p in /proc/[0-9]*; do read name < $p/comm; test $name = sleep && echo ${p#/proc/}; done 2>/dev/null";
        // What was killed takes a moment to be gone.
        assert_eq!(run(&format!("until test \"$({rest} | wc -l)\" = 1; do sleep 0.01; done")).await, "");
        assert_eq!(run(&format!("kill $({rest})")).await, "");
        gone("sleep 5001").await;
    }
}

#[tokio::test]
async fn nothing_outside_is_seen_or_signalled() {
    if !all_there() {
        return;
    }
    let place = Place::with_rooms();
    let mut outside = std::process::Command::new("sleep").arg("5002").spawn().unwrap();
    let (own, other) = (std::process::id(), outside.id());
    // Its own numbers are small, and of those of ours it has at most one by chance: that of its own shell.
    let seen = place.says("for p in /proc/[0-9]*; do echo $p $(cat $p/comm 2>/dev/null); done").await;
    assert!(seen.starts_with("/proc/1 cat\n") && seen.lines().count() < 6, "{seen}");
    let high = format!(
        "for p in {own} {other}; do test -e /proc/$p && test $p != $$ && echo seen; done; kill -0 {own} 2>&1; kill -0 {other} 2>&1; echo $(($$ < 100))"
    );
    let said = place.says(&high).await;
    assert!(!said.contains("seen") && said.matches("No such process").count() == 2 && said.ends_with("1\n"), "{said}");
    // Everything that it can name, the first of all too.
    place.says("kill -9 1; kill -9 -1").await;
    assert!(outside.try_wait().unwrap().is_none());
    assert_eq!(place.says("echo works").await, "works\n");
    outside.kill().unwrap();
    outside.wait().unwrap();
}

#[tokio::test]
async fn what_holds_the_numbers_cannot_be_looked_into() {
    if !all_there() {
        return;
    }
    let place = Place::with_rooms();
    let attach = format!("{CALL}{} 16 1 0 0", libc::SYS_ptrace);
    let table = [
        (attach.as_str(), "1\n"),
        ("cat /proc/1/environ /proc/1/maps 2>/dev/null | wc -c", "0\n"),
        ("ls /proc/1/root/ >/dev/null 2>&1 || readlink /proc/1/fd/0 || echo no", "no\n"),
        ("nsenter -t 1 -a true 2>/dev/null || echo no", "no\n"),
        ("echo x 2>/dev/null > /proc/1/mem || echo no", "no\n"),
    ];
    for (script, want) in table {
        assert_eq!(place.says(script).await, want, "{script}");
    }
}

#[tokio::test]
async fn whoever_loses_its_parent_is_seen_to() {
    if !all_there() {
        return;
    }
    let place = Place::with_rooms();
    place.says("for i in 1 2 3 4 5 6 7 8; do (true & true & exec sleep 0.05) & done; sleep 0.01").await;
    let zombies = async {
        while !place.says("grep -l ') Z ' /proc/[0-9]*/stat").await.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, zombies).await.unwrap();
}

#[tokio::test]
async fn all_of_it_ends_with_the_session_however_it_hides() {
    if !all_there() {
        return;
    }
    let place = Place::with_rooms();
    // Out of its group, without an environment, without a parent, deaf.
    let daemon = "trap \"\" TERM HUP; exec sleep 5003";
    place.says(&format!("env -i setsid sh -c '(sh -c \"{}\" &)' >/dev/null 2>&1", daemon.replace('"', "\\\""))).await;
    let python = "import os,sys\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\nos.execve(\"/bin/sleep\", [\"sleep\", \"5003\"], {})";
    place.says(&format!("python3 -c '{python}' >/dev/null 2>&1")).await;
    let begun = async {
        while running("sleep 5003").len() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, begun).await.unwrap();
    drop(place);
    gone("sleep 5003").await;
}

/// Runs itself in another process, which is the one that is killed.
#[tokio::test]
async fn all_of_it_ends_when_we_are_killed() {
    const KILLED: &str = "SIMSE_TEST_IS_KILLED";
    if !all_there() {
        return;
    }
    if std::env::var_os(KILLED).is_some() {
        let place = Place::with_rooms();
        place.says("env -i setsid sh -c '(trap \"\" TERM HUP; exec sleep 5005) &' >/dev/null 2>&1").await;
        return std::future::pending().await;
    }
    let mut other = std::process::Command::new(std::env::current_exe().unwrap());
    other.args(["--exact", "base::sandbox::tests::numbers::all_of_it_ends_when_we_are_killed"]).env(KILLED, "1");
    let mut other = other.stdout(std::process::Stdio::null()).spawn().unwrap();
    let begun = async {
        while running("sleep 5005").is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, begun).await.unwrap();
    other.kill().unwrap();
    other.wait().unwrap();
    gone("sleep 5005").await;
}

/// One that stops everything that it sees, also what has not begun yet and would keep us waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_stops_all_others_does_not_hold_us_up() {
    if !all_there() {
        return;
    }
    let place = Place::with_rooms();
    let stopper = "(until test -e go; do sleep 0.01; done; while :; do kill -STOP -1; done) >/dev/null 2>&1 & echo on";
    assert_eq!(place.says(stopper).await, "on\n");
    std::fs::write(place.home.path().join("work/go"), "").unwrap();
    let policy = place.policy(Level::WorkspaceWrite, false);
    let rooms = place.rooms.clone().unwrap();
    for _ in 0..5 {
        let mut invocation = place.invocation(policy.clone(), "echo through", Vec::new());
        invocation.confinement.as_mut().unwrap().loopback = Some(Arc::clone(&rooms));
        let limits = RunLimits { timeout: Duration::from_millis(300), output_bytes_max: 50_000 };
        let begin = Instant::now();
        let ending = run(&invocation, limits, &CancellationToken::new()).await.unwrap().ending;
        assert!(begin.elapsed() < LONG, "{ending:?}");
    }
    drop((place, rooms));
}

#[tokio::test]
async fn on_a_terminal_it_is_the_same() {
    if !all_there() {
        return;
    }
    let place = Place::with_rooms();
    let policy = place.policy(Level::WorkspaceWrite, false);
    let rooms = place.rooms.clone().unwrap();
    rooms.furnish(&policy).unwrap();
    let script = "test -t 0 && echo on > /dev/tty; trap 'echo caught; exit 3' INT; set -- /proc/[0-9]*; echo $#; while :; do sleep 0.02; done";
    let mut invocation = place.invocation(policy, script, Vec::new());
    invocation.confinement.as_mut().unwrap().loopback = Some(rooms);
    let (mut program, mut output, terminal) = follow(&invocation, Some(TerminalSize::default())).unwrap();
    let mut read = async |sign: &str| {
        let mut all = String::new();
        let mut chunk = [0; 256];
        while !all.contains(sign) {
            let Ok(count) = tokio::time::timeout(LONG, output.read(&mut chunk)).await else {
                panic!("no {sign:?}: {all:?}")
            };
            assert!(count > 0, "{all}");
            all.push_str(&String::from_utf8_lossy(&chunk[..count]));
        }
        all
    };
    let said = read("\n2\r\n").await;
    assert!(said.starts_with("on\r\n"), "{said}");
    terminal.unwrap().write(b"\x03").await.unwrap();
    read("caught").await;
    assert_eq!(program.wait().await.unwrap().code(), Some(3));
}

#[tokio::test]
async fn a_session_that_rests_gives_its_place_back() {
    if !all_there() {
        return;
    }
    let places: Vec<Place> = (0..24).map(|_| Place::with_rooms()).collect();
    let rests = |place: &Place| !place.rooms.as_ref().unwrap().has_home();
    let busy = &places[0];
    busy.says("sleep 5004 >/dev/null 2>&1 & echo x > first").await;
    for place in &places[1..] {
        assert_eq!(place.says("echo x > first; kill -0 1 && echo there").await, "there\n");
    }
    assert!(!rests(busy), "something runs there");
    // Others of this process' tests have some of those that are kept.
    let resting = places.iter().filter(|place| rests(place)).count();
    assert!(resting >= 7, "{resting}");
    assert_eq!(busy.says("kill -9 -1; echo still").await, "still\n");
    for place in &places {
        assert_eq!(place.says("cat first; echo x > ../beside/b").await.lines().next(), Some("x"), "it is made anew");
    }
    let open = std::fs::read_dir("/proc/self/fd").unwrap().count();
    drop(places);
    let less = std::fs::read_dir("/proc/self/fd").unwrap().count();
    assert!(less < open, "{open} then {less}");
}
