//! A hundred ways to become a daemon, none of which outlives its command.

use std::fs;

use futures_util::future::join_all;

use crate::place::{Place, soon};

/// How a command lets go of what it starts. `X` is what is started.
const LAUNCHES: [&str; 10] = [
    "X & :",
    "nohup X >/dev/null 2>&1 & disown; :",
    "setsid X </dev/null >/dev/null 2>&1 & :",
    "setsid -f X",
    "(X &)",
    "( ( ( cd /; setsid X & ) & ) & ); :",
    "coproc X; exec true",
    "exec 7< <(X); :",
    "trap 'setsid X &' EXIT; :",
    "set -m; X & bash -c 'setsid X & exec sh -c \"X & exit 0\"'",
];

/// What is started: a script by its name, that gets the place's number.
const BODIES: [(&str, &str); 10] = [
    ("plain", "sleep $1"),
    ("stubborn", "trap '' TERM HUP INT QUIT; while :; do sleep $1; done"),
    ("closed", "exec 0<&- 1>&- 2>&-; sleep $1; sleep $1"),
    ("loud", "while echo tick; do sleep 0.02; done; sleep $1"),
    ("stopped", "kill -STOP $$; sleep $1"),
    ("renamed", "(exec -a innocent sleep $1) & (exec -a '[kworker/0:1]' sleep $1) & wait"),
    ("respawning", "trap 'setsid sleep $1 & setsid sleep $1 & sleep $1' TERM; while :; do sleep 0.01; done"),
    ("namespaced", "unshare -Urpf sleep $1 || unshare -U sleep $1 || sleep $1"),
    (
        "classic",
        "perl -MPOSIX -e 'fork and exit; POSIX::setsid(); fork and exit; chdir \"/\"; POSIX::close($_) for 0..9; \
         sleep $ARGV[0]' $1 || sleep $1",
    ),
    (
        "chain",
        "perl -e '$SIG{HUP} = \"IGNORE\"; for (1 .. 1e9) { $0 = \"link$_\"; fork and exit; select(undef, undef, undef, \
         0.0005) }' || sleep $1",
    ),
];

/// Neither a process nor an open descriptor.
pub(crate) async fn a_hundred_daemons_leave_nothing(place: Place) {
    for (name, body) in BODIES {
        fs::write(place.root.join(name), body).unwrap();
    }
    place.run("true").await.unwrap();
    let (agent, keeper) = (place.descriptors(None), place.descriptors(Some(place.keeper())));
    for (number, launch) in LAUNCHES.iter().enumerate() {
        // Side by side: each has a keeper of its own then, and ends while others run.
        let runs = BODIES.map(|(name, _)| {
            let command = launch.replace('X', &format!("bash {}/{name} MARK", place.root.display()));
            let command = format!("export DAEMON_OF=MARK; {command}");
            let place = &place;
            async move { (name, soon(place.run(&command)).await) }
        });
        for (name, result) in join_all(runs).await {
            assert!(result.is_ok(), "launch {number} of {name}: {result:?}");
        }
        place.assert_no_process();
    }
    assert_eq!(place.descriptors(None), agent);
    place.run("true").await.unwrap();
    assert_eq!(place.descriptors(Some(place.keeper())), keeper);
}
