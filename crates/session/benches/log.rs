//! How long it takes to write an entry and to open a session, by its number of entries.

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

#[allow(dead_code, reason = "the example makes more of it")]
mod made;

use std::hint::black_box;
use std::path::Path;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use made::Made;
use mainstay_session::log;

/// A round of two entries: written, and applied to a state that holds a thousand of them.
fn append(c: &mut Criterion) {
    let home = tempfile::tempdir().unwrap();
    let mut number = 0;
    let mut session = || {
        number += 1;
        let mut session = Made::new(home.path(), Path::new("/work"), number);
        session.prompt("Go");
        (0..500).for_each(|_| session.round(1000));
        session
    };
    let mut group = c.benchmark_group("append and apply");
    group.throughput(Throughput::Elements(200));
    group.bench_function("a hundred rounds of 1 KB", |bench| {
        bench.iter_batched_ref(
            &mut session,
            |session| (0..100).for_each(|_| session.round(1000)),
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

/// One segment, read whole: what a resume pays before its first request.
fn open(c: &mut Criterion) {
    let mut group = c.benchmark_group("open");
    group.sample_size(10);
    for entries in [10_000, 100_000] {
        let home = tempfile::tempdir().unwrap();
        let mut session = Made::new(home.path(), Path::new("/work"), 1);
        session.prompt("Go");
        (0..entries / 2).for_each(|_| session.round(200));
        let dir = session.log.dir().to_owned();
        drop(session);
        group.throughput(Throughput::Elements(entries));
        group.bench_function(format!("{entries} entries"), |bench| {
            bench.iter(|| black_box(log::read(&dir).unwrap()));
        });
    }
    group.finish();
}

criterion_group!(benches, append, open);
criterion_main!(benches);
