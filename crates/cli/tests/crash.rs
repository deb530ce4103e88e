//! Kills the real binary wherever it writes, syncs, renames or starts something, and at random instants, and has it resumed.
//!
//! ```text
//! cargo test -p mainstay-cli --test crash               a few dozen kills
//! cargo test -p mainstay-cli --test crash -- --full     at least 1,000
//!     --kills N   another number of them      --seed N      others
//!     --only P    those whose place holds P   --threads N   so many sessions at a time
//! ```
//!
//! What is compared with a run that nothing happened to stands in `docs/durability.md`, and in `crash/check.rs`.

#![allow(clippy::unwrap_used, clippy::print_stdout, unreachable_pub, reason = "a test, with a report")]
#![allow(dead_code, reason = "shared with other tests")]

#[path = "crash/check.rs"]
mod check;
#[path = "crash/machine.rs"]
mod machine;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use check::Reference;
use machine::{Fault, Machine, TURNS};

/// How many kills there are where nobody asks for another number.
const A_FEW: usize = 36;
const FULL: usize = 1_000;

/// The most runs that a session may need to come to its end.
const RUNS: usize = 12;

/// L01, L02, law 4, law 5; L03 and L04 hold under it too, and so do N02 (a message is told once) and R09 (nothing lost).
fn main() {
    let asked = Asked::read();
    let begun = Instant::now();
    let reference = Reference::make();
    let plans = plans(&reference, &asked);
    let report = Mutex::new(Report::default());
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..asked.threads {
            scope.spawn(|| {
                while let Some(plan) = plans.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if plan.is_spare && report.lock().unwrap().kills() >= asked.kills {
                        break;
                    }
                    let found = catch_unwind(AssertUnwindSafe(|| session(&reference, plan)));
                    let found = found.unwrap_or_else(|_| Err("a panic".to_owned()));
                    report.lock().unwrap().take(plan, found);
                }
            });
        }
    });
    let report = report.into_inner().unwrap();
    report.show(begun.elapsed());
    if !report.faults.is_empty() || (asked.only.is_none() && report.kills() < asked.kills) {
        std::process::exit(1);
    }
}

/// What the command line says. What belongs to the usual harness, such as a name to filter by, is passed over.
struct Asked {
    kills: usize,
    seed: u64,
    only: Option<String>,
    threads: usize,
}

impl Asked {
    fn read() -> Self {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        let mut asked = Asked { kills: A_FEW, seed: 1, only: None, threads };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--full" => asked.kills = FULL,
                "--kills" => asked.kills = arguments.next().unwrap().parse().unwrap(),
                "--seed" => asked.seed = arguments.next().unwrap().parse().unwrap(),
                "--threads" => asked.threads = arguments.next().unwrap().parse().unwrap(),
                "--only" => asked.only = arguments.next(),
                _ => {}
            }
        }
        asked
    }
}

/// What happens to one session: a fault in the run of a turn, and perhaps one in the run that resumes it.
#[derive(Debug)]
struct Plan {
    /// In which turn, from 0.
    turn: usize,
    name: String,
    fault: Fault,
    then: Option<Fault>,
    /// Whether it is there only in case that others were not killed.
    is_spare: bool,
}

/// The kills: each pass of each place while there are enough, else the first of each place and a choice; a quarter at
/// random instants; and every fourth session is killed once more while it is resumed.
fn plans(reference: &Reference, asked: &Asked) -> Vec<Plan> {
    let mut chance = Chance(asked.seed);
    let mut passes: Vec<(usize, String, usize)> = Vec::new();
    for (turn, trace) in reference.traces[..TURNS.len() - 1].iter().enumerate() {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for place in trace {
            let count = counts.entry(place).or_default();
            *count += 1;
            passes.push((turn, place.clone(), *count));
        }
    }
    let places: Vec<String> = passes.iter().map(|(_, place, _)| place.clone()).collect();
    // Seldom ones first, so that a few kills meet every place.
    let mut order: Vec<(usize, usize)> = (0..passes.len())
        .map(|at| (places[..at].iter().filter(|place| **place == places[at]).count(), at))
        .collect();
    order.sort_by_cached_key(|(before, at)| {
        (*before > 0, if *before > 0 { chance.below(1_000_000) } else { 0 }, *at)
    });
    let distinct = order.iter().filter(|(before, _)| *before == 0).count();
    let least = (asked.kills * 5 / 6).max(distinct * 4 / 3 + 1);
    let mut plans = Vec::new();
    for number in 0..least + asked.kills {
        let at_random = number % 4 == 3;
        let (turn, place, pass) = &passes[order[(number - number / 4) % order.len()].1];
        let (turn, name, fault) = if at_random {
            let turn = chance.below(2);
            let longest = usize::try_from(reference.took[turn].as_micros()).unwrap();
            let after = Duration::from_micros(chance.below(longest + longest / 8) as u64);
            let fault = Fault { kill_after: Some(after), ..Fault::default() };
            (turn, "a random instant".to_owned(), fault)
        } else {
            (*turn, place.clone(), Fault { orders: format!("{place}#{pass}=kill"), ..Fault::default() })
        };
        let then = match name.as_str() {
            "log.append.half" => Some((SETTING_ASIDE[chance.below(SETTING_ASIDE.len())], 1)),
            _ if number % 4 == 1 => Some((places[chance.below(places.len())].as_str(), 1 + chance.below(4))),
            _ => None,
        };
        let kill = |(place, pass)| Fault { orders: format!("{place}#{pass}=kill"), ..Fault::default() };
        plans.push(Plan { turn, name, fault, then: then.map(kill), is_spare: number >= least });
    }
    plans.retain(|plan| asked.only.as_ref().is_none_or(|only| plan.fault.orders.contains(only)));
    plans
}

/// The places that a process comes by which finds a torn line.
const SETTING_ASIDE: [&str; 5] = ["torn.write", "torn.write.half", "copy.sync", "folder.sync", "torn.cut"];

/// A small generator of numbers that are the same each time (SplitMix64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % end.max(1) as u64).unwrap()
    }
}

/// What a session came to.
#[derive(Default)]
struct Found {
    kills: Vec<String>,
    slowest_resume: Duration,
    slowest_end: Duration,
}

/// Takes a session to its end, with the kills of a plan.
fn session(reference: &Reference, plan: &Plan) -> Result<Found, String> {
    let mut machine = Machine::new();
    let mut found = Found::default();
    let mut then = plan.then.clone();
    let mut is_due = true;
    let mut open = Vec::new();
    for _ in 0..RUNS {
        let Some(prompt) = machine.next_prompt() else {
            check::check_closed(&machine, &open)?;
            check::check_requests_grew(&machine)?;
            reference.check_end(&machine, true)?;
            return Ok(found);
        };
        let before = machine.segments();
        let is_first = found.kills.is_empty();
        let is_here = is_due && prompt == TURNS[plan.turn].0;
        let fault = match (is_here, is_first) {
            (true, _) => plan.fault.clone(),
            (false, false) if prompt != TURNS[TURNS.len() - 1].0 => then.take().unwrap_or_default(),
            (false, _) => Fault::default(),
        };
        is_due &= !is_here;
        let ended = machine.exec(prompt, &fault);
        found.slowest_end = found.slowest_end.max(machine.wait_for_the_last()?);
        check::check_kept(&machine, &before)?;
        check::check_nothing_unlogged(&machine)?;
        check::check_files_are_whole(&machine)?;
        if !ended.was_killed {
            if ended.code != Some(0) {
                return Err(format!("a run ended with {:?}: {}", ended.code, ended.err));
            }
            check::check_sound(&machine, &ended)?;
            if !is_first {
                found.slowest_resume = found.slowest_resume.max(ended.until_started.unwrap_or_default());
            }
            continue;
        }
        found.kills.push(if is_here { plan.name.clone() } else { "while it was resumed".to_owned() });
        if is_first {
            reference.check_prefix(&machine)?;
        }
        if let Some((state, _)) = machine.state() {
            let mut cut = check::open_calls(&state);
            cut.extend(check::interrupted_calls(&state));
            cut.retain(|(at, _)| !open.contains(at));
            if !cut.is_empty() {
                let calls: Vec<_> = cut.iter().map(|(_, call)| call.clone()).collect();
                machine.repeat(&state, &calls);
            }
            open.extend(cut.into_iter().map(|(at, _)| at));
        }
    }
    Err(format!("no end after {RUNS} runs"))
}

/// What all sessions came to.
#[derive(Default)]
struct Report {
    sessions: usize,
    by_place: BTreeMap<String, usize>,
    not_reached: usize,
    faults: Vec<String>,
    slowest_resume: Duration,
    slowest_end: Duration,
}

impl Report {
    fn take(&mut self, plan: &Plan, found: Result<Found, String>) {
        self.sessions += 1;
        match found {
            Ok(found) => {
                self.not_reached += usize::from(found.kills.is_empty());
                for place in found.kills {
                    *self.by_place.entry(place).or_default() += 1;
                }
                self.slowest_resume = self.slowest_resume.max(found.slowest_resume);
                self.slowest_end = self.slowest_end.max(found.slowest_end);
            }
            Err(fault) => {
                println!("FAULT in turn {} with {:?} {:?}: {fault}", plan.turn + 1, plan.fault, plan.then);
                self.faults.push(fault);
            }
        }
    }

    fn kills(&self) -> usize {
        self.by_place.values().sum()
    }

    fn show(&self, took: Duration) {
        for (place, kills) in &self.by_place {
            println!("{kills:>6}  {place}");
        }
        let count = |what: &str| self.faults.iter().filter(|fault| fault.starts_with(what)).count();
        println!(
            "{} sessions, {} kills, {} faults ({} left running), {} not reached; slowest resume {:?}, last process gone after \
             {:?}; took {:.1?}",
            self.sessions,
            self.kills(),
            self.faults.len(),
            count("left running"),
            self.not_reached,
            self.slowest_resume,
            self.slowest_end,
            took,
        );
    }
}
