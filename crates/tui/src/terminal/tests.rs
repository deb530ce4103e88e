//! The terminal is given back, however a program ends: this program again, on a pseudo-terminal of its own.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};

use super::*;

const HOW: &str = "TEST_OF_THE_TERMINAL";
const LAST: &[u8] = b"nothing comes behind this";

/// What a program does that took the terminal. Only for the other test, which starts it.
#[test]
fn as_started_on_a_terminal() {
    let Ok(how) = std::env::var(HOW) else { return };
    let terminal = Terminal::take().unwrap();
    match how.as_str() {
        "end" => {}
        "lend" => terminal.lend(|| println!("lent")).unwrap(),
        "panic" => panic!("the very words"),
        "elsewhere" => {
            let thread = std::thread::spawn(|| panic!("the very words"));
            assert!(thread.join().is_err());
        }
        other => panic!("{other}"),
    }
}

/// A panic in any thread gives it back before its words come, and nothing gives it back twice.
#[test]
fn whatever_happens_the_terminal_is_given_back() {
    for (how, times) in [("end", 1), ("lend", 2), ("panic", 1), ("elsewhere", 1)] {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        // Held, so that the terminal stays as it is left.
        let held = File::options().read(true).write(true).open(&name).unwrap();
        let slave = || Stdio::from(held.try_clone().unwrap());
        let mut child = Command::new("setsid")
            .args(["--wait", "--ctty"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "terminal::tests::as_started_on_a_terminal", "--nocapture"])
            .env(HOW, how)
            .stdin(slave())
            .stdout(slave())
            .stderr(slave())
            .spawn()
            .unwrap();
        let mut reading = File::from(master);
        let (sender, bytes) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = reading.read(&mut buffer) {
                if sender.send(buffer[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
        let begun = Instant::now();
        while child.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < Duration::from_secs(30), "{how}: it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        // What is written last comes last.
        (&held).write_all(LAST).unwrap();
        let mut all = Vec::new();
        while !all.ends_with(LAST) {
            all.extend(bytes.recv_timeout(Duration::from_secs(30)).unwrap());
        }
        let text = String::from_utf8_lossy(&all).into_owned();
        assert_eq!(text.matches(LEAVE).count(), times, "{how}: {text:?}");
        assert_eq!(text.matches(ENTER).count(), times, "{how}: {text:?}");
        if let Some(words) = text.find("the very words") {
            assert!(text.find(LEAVE).unwrap() < words, "{how}: {text:?}");
        }
        assert_eq!(text.contains("the very words"), matches!(how, "panic" | "elsewhere"), "{how}: {text:?}");
        let modes = tcgetattr(&held).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO), "{how}: {modes:?}");
    }
}
