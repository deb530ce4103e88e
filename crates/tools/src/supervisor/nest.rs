//! Where the commands of one keeper live: what keeps them together, so that they can be ended together.
//!
//! Whatever a command starts, in whatever way, stays in its nest. [`Nest::empty`] ends all of it and says how much there
//! was.

use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use std::{
    fs::File,
    io::{self, PipeWriter, Read, Write},
    os::fd::AsFd,
};

use crate::sys;
#[cfg(target_os = "linux")]
use crate::sys::Fork;

/// How long what a command left running may take to end after it was asked to.
const LEFT_GRACE: Duration = Duration::from_millis(100);

/// How long the end of killed processes is waited for.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// What keeps commands together.
pub(super) enum Nest {
    /// A pid namespace. When its first process ends, the kernel ends all others; that one ends with the keeper.
    #[cfg(target_os = "linux")]
    Namespace {
        /// The first process, as seen from outside.
        first: u32,
        /// The mounts in which `/proc` shows the inside.
        mounts: File,
        /// The root directory within them: not theirs, if this process lives in a changed root.
        root: File,
        /// The end of this pipe ends the first process.
        _alive: PipeWriter,
    },
    /// The keeper is the parent of all its descendants that have lost theirs.
    Subreaper,
}

/// What ending everything in a nest came to, in processes.
pub(super) struct Emptied {
    /// What was there.
    pub(super) left: u32,
    /// What is there still.
    pub(super) stuck: u32,
}

impl Nest {
    /// The best that this system and this user allow.
    pub(super) fn make() -> Self {
        #[cfg(target_os = "linux")]
        if let Ok(nest) = Nest::namespace() {
            return nest;
        }
        sys::become_subreaper();
        Nest::Subreaper
    }

    #[cfg(target_os = "linux")]
    fn namespace() -> io::Result<Self> {
        let home = File::open("/proc/self/ns/pid")?;
        sys::new_pid_namespace()?;
        let nest = Nest::first_process();
        if nest.is_err() {
            // Without a first process nothing can be forked into the namespace.
            sys::return_to(home.as_fd());
        }
        nest
    }

    #[cfg(target_os = "linux")]
    fn first_process() -> io::Result<Self> {
        let (alive, mut end) = io::pipe().map(|(read, write)| (write, read))?;
        let (mut ready, mut word) = io::pipe()?;
        let first = match sys::fork()? {
            Fork::Parent(pid) => pid,
            Fork::Child => {
                drop((alive, ready));
                sys::die_with_parent();
                sys::ignore_children();
                if sys::own_proc().and_then(|()| word.write_all(b"!")).is_ok() {
                    drop(word);
                    // Returns when the keeper is gone, should its signal have come too early.
                    let _ = end.read(&mut [0]);
                }
                sys::exit_now(0)
            }
        };
        drop((end, word));
        let is_ready = ready.read(&mut [0])? == 1;
        if !is_ready {
            sys::wait_for(first);
            return Err(io::Error::other("no /proc of its own"));
        }
        let mounts = File::open(format!("/proc/{first}/ns/mnt"))?;
        let root = File::open(format!("/proc/{first}/root"))?;
        Ok(Nest::Namespace { first, mounts, root, _alive: alive })
    }

    /// For a process that was just forked: sees what its kin are to see.
    pub(super) fn enter(&self) {
        match self {
            #[cfg(target_os = "linux")]
            Nest::Namespace { mounts, root, .. } => sys::enter_mounts(mounts.as_fd(), root.as_fd()),
            Nest::Subreaper => {}
        }
    }

    /// Ends whatever lives in it.
    pub(super) fn empty(&self) -> Emptied {
        let left = self.count();
        if left == 0 {
            return Emptied { left, stuck: 0 };
        }
        self.signal(libc::SIGTERM);
        self.wait_until_empty(LEFT_GRACE);
        let until = Instant::now() + PATIENCE;
        loop {
            let stuck = self.count();
            if stuck == 0 || Instant::now() >= until {
                return Emptied { left, stuck };
            }
            // Without a pause: what forks as fast as it can must be met by chance.
            self.signal(libc::SIGKILL);
        }
    }

    /// Waits, but not longer than this, until nothing lives in it.
    pub(super) fn wait_until_empty(&self, time: Duration) {
        let until = Instant::now() + time;
        while self.count() > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// How many processes live in it.
    fn count(&self) -> u32 {
        let number = match self {
            #[cfg(target_os = "linux")]
            Nest::Namespace { first, .. } => {
                let inside = format!("/proc/{first}/root/proc");
                let is_alive = |pid: &u32| *pid != 1 && sys::stat_of(&inside, *pid).is_some_and(is_alive);
                sys::pids(&inside).into_iter().filter(is_alive).count()
            }
            Nest::Subreaper => {
                // Whoever lost a parent is a child of this process, so without children there is nobody. What a look
                // at the tree misses, because it changes meanwhile, is there nevertheless.
                if !sys::reap() {
                    return 0;
                }
                let is_alive = |pid: &u32| sys::stat_of("/proc", *pid).is_some_and(is_alive);
                sys::descendants(std::process::id()).into_iter().filter(is_alive).count().max(1)
            }
        };
        u32::try_from(number).unwrap_or(u32::MAX)
    }

    fn signal(&self, signal: i32) {
        match self {
            // From a process inside, to all but the first: no process can be missed, and none outside be met.
            #[cfg(target_os = "linux")]
            Nest::Namespace { .. } => match sys::fork() {
                Ok(Fork::Child) => {
                    sys::kill(-1, signal);
                    sys::exit_now(0)
                }
                Ok(Fork::Parent(pid)) => {
                    sys::wait_for(pid);
                }
                Err(_later) => {}
            },
            Nest::Subreaper => {
                // One that forks and ends, over and over, is this process's child at every moment but is not met by
                // a look at the whole tree, which takes longer than it lives.
                let rounds = if signal == libc::SIGKILL { 100 } else { 1 };
                for _ in 0..rounds {
                    sys::children().into_iter().for_each(|pid| sys::kill(pid.cast_signed(), signal));
                    if !sys::reap() {
                        return;
                    }
                }
                for pid in sys::descendants(std::process::id()) {
                    sys::kill(pid.cast_signed(), signal);
                }
            }
        }
    }
}

fn is_alive(stat: sys::Stat) -> bool {
    stat.state != 'Z'
}
