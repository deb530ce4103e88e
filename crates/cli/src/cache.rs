//! `mainstay history --cache`: what each request shared with the one before, and what the provider's cache held of it.
//!
//! A request should open with all units of the request before; a provider's cache lives on that. Where one does not, the
//! log says why: a compaction, a rewind, another model. If it says nothing, both requests are built anew from the log,
//! and the first byte is named in which they differ. Reads only.

mod sent;
mod rebuilt;

use std::collections::BTreeMap;

use mainstay_agent::SessionPictures;
use mainstay_agent::session::entry::{Body, Entry, SessionHeader};
use mainstay_agent::session::ids::Seq;
use mainstay_agent::session::log::{self, Durability, SessionSummary, Spill};
use mainstay_agent::session::message::{Ended, Usage};
use mainstay_agent::session::state::SessionState;
use serde::Serialize;

use crate::error::CliError;
use crate::history::unreadable;
use crate::output::{counted, inert, out, shortened};
use rebuilt::{Parting, Rebuilt, rebuild};
use sent::{Collector, Event, Sent, in_words};

/// Shows the requests of a session, as a table or as one JSON document.
///
/// # Errors
///
/// If the session cannot be read.
pub(crate) fn cache(session: &SessionSummary, json: bool) -> Result<(), CliError> {
    let sent = read(session)?;
    let breaks = explain(session, &sent)?;
    if json {
        out(&serde_json::to_string_pretty(&document(session, &sent, &breaks)).unwrap_or_default());
    } else {
        show(&sent, &breaks);
    }
    Ok(())
}

fn read(session: &SessionSummary) -> Result<Vec<Sent>, CliError> {
    let mut collector = Collector::default();
    log::entries(&session.dir, |_, entry| match entry {
        Ok(entry) => collector.take(&entry),
        Err(_) => collector.bad_line(),
    })
    .map_err(unreadable)?;
    Ok(collector.finish())
}

/// The name of how an attempt ended.
fn ended(ended: &Ended) -> &'static str {
    match ended {
        Ended::Complete => "complete",
        Ended::Cancelled => "cancelled",
        Ended::Failed { class, .. } => class.as_str(),
    }
}

/// A request that does not open with all of the one before.
#[derive(Clone, Debug)]
struct Break {
    /// Where the two part; none where one of them could not be built anew.
    parting: Option<Parting>,
    /// Settings that were others, of those that shape a request.
    settings: Vec<&'static str>,
}

impl Break {
    /// Whether the log or the settings say why.
    fn is_explained(&self, sent: &Sent) -> bool {
        !sent.since.is_empty() || !self.settings.is_empty()
    }

    fn reason(&self, sent: &Sent) -> String {
        let mut reasons = Vec::new();
        if !sent.since.is_empty() {
            reasons.push(in_words(&sent.since));
        }
        if !self.settings.is_empty() {
            reasons.push(format!("setting changed: {}", self.settings.join(", ")));
        }
        match reasons.is_empty() {
            true => "nothing in the log explains it".to_owned(),
            false => reasons.join("; "),
        }
    }
}

/// Finds the requests that do not open with all of the one before, by their places, and where they part.
fn explain(session: &SessionSummary, sent: &[Sent]) -> Result<BTreeMap<usize, Break>, CliError> {
    let broken: Vec<usize> = (0..sent.len()).filter(|place| is_broken(sent, *place)).collect();
    let wanted = broken.iter().flat_map(|place| [Some(*place), sent[*place].before]).flatten();
    let wanted: BTreeMap<Seq, usize> = wanted.map(|place| (sent[place].seq, place)).collect();
    let rebuilt = if wanted.is_empty() { BTreeMap::new() } else { rebuild_all(session, sent, &wanted)? };
    let explained = broken.into_iter().map(|place| {
        let pair = sent[place].before.and_then(|before| Some((rebuilt.get(&before)?, rebuilt.get(&place)?)));
        let (parting, settings) = match pair {
            Some((before, after)) => {
                (Parting::of(&before.units, &after.units), before.shape.differences(after.shape))
            }
            None => (None, Vec::new()),
        };
        (place, Break { parting, settings })
    });
    Ok(explained.collect())
}

fn is_broken(sent: &[Sent], place: usize) -> bool {
    let request = &sent[place];
    request.lane.is_none()
        && request.before.is_some_and(|before| sent[before].mark.units != request.mark.shared)
}

/// Builds the wanted requests anew, in one pass over the log.
fn rebuild_all(
    session: &SessionSummary,
    sent: &[Sent],
    wanted: &BTreeMap<Seq, usize>,
) -> Result<BTreeMap<usize, Rebuilt>, CliError> {
    let pictures = SessionPictures::new(Spill::of_session(&session.dir, Durability::Relaxed));
    let mut state = SessionState::default();
    let mut rebuilt = BTreeMap::new();
    log::entries(&session.dir, |_, entry| {
        let Ok(entry) = entry else { return };
        if let (Some(place), Body::Answer(answer)) = (wanted.get(&entry.seq), &entry.body) {
            let found = rebuild(&state, answer, &sent[*place].mark, &pictures);
            rebuilt.extend(found.map(|found| (*place, found)));
        }
        follow(&mut state, &entry);
    })
    .map_err(unreadable)?;
    Ok(rebuilt)
}

/// A segment is read by itself, as a resume does.
fn follow(state: &mut SessionState, entry: &Entry) {
    // A segment that an older version began has a second header where a newer one went on.
    let segment = |header: &SessionHeader| header.segment;
    if matches!(&entry.body, Body::Session(header) if state.header.as_ref().map(segment) != Some(header.segment))
    {
        *state = SessionState::default();
    }
    if entry.seq > state.last_seq {
        state.apply(entry);
    }
}

fn show(sent: &[Sent], breaks: &BTreeMap<usize, Break>) {
    if sent.is_empty() {
        return out("no request was sent yet");
    }
    out(&row(["entry", "units", "shared", "bytes", "in", "cached", "share", "model"]));
    for (place, request) in sent.iter().enumerate() {
        out(&line(request, shared(sent, place, breaks)));
        let part = breaks.get(&place);
        if let Some(part) = part {
            out(&format!("       ! prefix broken: {}", inert(&part.reason(request))));
            details(sent, place, part).iter().for_each(|detail| out(&format!("         {detail}")));
        } else if !request.since.is_empty() {
            out(&format!("       ({})", inert(&in_words(&request.since))));
        }
    }
    out(&summary(&totals(sent, breaks)));
}

fn row([seq, units, shared, bytes, input, cached, share, model]: [&str; 8]) -> String {
    format!("{seq:>6} {units:>6} {shared:>6} {bytes:>9} {input:>8} {cached:>8} {share:>5}  {model}")
}

fn line(request: &Sent, shared: Option<usize>) -> String {
    let known = |number: Option<u64>| number.map_or_else(|| "–".to_owned(), |number| number.to_string());
    let usage = request.usage;
    let mut model = inert(&request.model);
    if let Some(lane) = &request.lane {
        model.push_str(&format!(" [{}]", inert(lane)));
    }
    if request.ended != "complete" {
        model.push_str(&format!(" ({})", request.ended));
    }
    row([
        &request.seq.to_string(),
        &request.mark.units.to_string(),
        &known(shared.map(|shared| shared as u64)),
        &request.mark.bytes.to_string(),
        &known(usage.map(|usage| usage.input_tokens)),
        &known(usage.map(|usage| usage.cached_tokens)),
        &usage.and_then(share).map_or_else(|| "–".to_owned(), |share| format!("{:.0} %", share * 100.0)),
        &model,
    ])
}

/// How many units a request shares with the one before it: none for the first, and where it is not known.
fn shared(sent: &[Sent], place: usize, breaks: &BTreeMap<usize, Break>) -> Option<usize> {
    sent[place].before?;
    match breaks.get(&place) {
        Some(part) => Some(part.parting.as_ref()?.shared),
        None => Some(sent[place].mark.shared as usize),
    }
}

/// Where an unexplained break is; a line on what could not be found out.
fn details(sent: &[Sent], place: usize, part: &Break) -> Vec<String> {
    let request = &sent[place];
    let before = request.before.map_or(0, |before| sent[before].seq);
    match &part.parting {
        Some(parting) if !part.is_explained(request) => vec![
            format!(
                "unit {} of {} differs from that of entry {before} in its byte {} (byte {} of the request's units)",
                parting.shared + 1,
                request.mark.units,
                parting.byte,
                parting.offset
            ),
            format!("was: {}", shortened(&inert(&parting.was), 100)),
            format!("is:  {}", shortened(&inert(&parting.is), 100)),
        ],
        Some(_) => Vec::new(),
        None if part.is_explained(request) => Vec::new(),
        None => vec![format!(
            "entries {before} and {} cannot be built anew as they were sent: another version wrote them, or lines of \
             the log are lost",
            request.seq
        )],
    }
}

/// What part of a request came from the provider's cache.
fn share(usage: Usage) -> Option<f64> {
    (usage.input_tokens > 0).then(|| usage.cached_tokens as f64 / usage.input_tokens as f64)
}

#[derive(Serialize)]
struct Totals {
    requests: usize,
    broken: usize,
    unexplained: usize,
    input_tokens: u64,
    cached_tokens: u64,
    cached_share: Option<f64>,
}

fn totals(sent: &[Sent], breaks: &BTreeMap<usize, Break>) -> Totals {
    let mut usage = Usage::default();
    sent.iter().filter_map(|request| request.usage).for_each(|other| usage.add(other));
    Totals {
        requests: sent.len(),
        broken: breaks.len(),
        unexplained: breaks.iter().filter(|(place, part)| !part.is_explained(&sent[**place])).count(),
        input_tokens: usage.input_tokens,
        cached_tokens: usage.cached_tokens,
        cached_share: share(usage),
    }
}

fn summary(totals: &Totals) -> String {
    let prefix = match (totals.broken, totals.unexplained) {
        (0, _) => "each opens with all of the one before".to_owned(),
        (broken, 0) => format!("{broken} of them with a broken prefix, for reasons that the log names"),
        (broken, unexplained) => {
            format!("{broken} of them with a broken prefix, {unexplained} without a reason")
        }
    };
    let share = totals.cached_share.map_or_else(String::new, |share| format!(" ({:.0} %)", share * 100.0));
    format!(
        "{}; {prefix}; {} of {} input tokens came from the provider's cache{share}",
        counted(totals.requests as u64, "request"),
        totals.cached_tokens,
        totals.input_tokens
    )
}

#[derive(Serialize)]
struct Document<'a> {
    session_id: &'a str,
    requests: Vec<Row<'a>>,
    totals: Totals,
}

#[derive(Serialize)]
struct Row<'a> {
    seq: Seq,
    #[serde(skip_serializing_if = "Option::is_none")]
    lane: Option<&'a str>,
    model: &'a str,
    ended: &'a str,
    units: u32,
    shared: Option<usize>,
    bytes: u64,
    input_tokens: Option<u64>,
    cached_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cached_share: Option<f64>,
    since: &'a [Event],
    #[serde(rename = "break")]
    part: Option<Part<'a>>,
}

#[derive(Serialize)]
struct Part<'a> {
    explained: bool,
    reason: String,
    settings: &'a [&'static str],
    unit: Option<usize>,
    byte: Option<usize>,
    offset: Option<usize>,
    was: Option<&'a str>,
    is: Option<&'a str>,
}

fn document<'a>(
    session: &'a SessionSummary,
    sent: &'a [Sent],
    breaks: &'a BTreeMap<usize, Break>,
) -> Document<'a> {
    let row = |(place, request): (usize, &'a Sent)| Row {
        seq: request.seq,
        lane: request.lane.as_deref(),
        model: &request.model,
        ended: request.ended,
        units: request.mark.units,
        shared: shared(sent, place, breaks),
        bytes: request.mark.bytes,
        input_tokens: request.usage.map(|usage| usage.input_tokens),
        cached_tokens: request.usage.map(|usage| usage.cached_tokens),
        output_tokens: request.usage.map(|usage| usage.output_tokens),
        cached_share: request.usage.and_then(share),
        since: &request.since,
        part: breaks.get(&place).map(|part| part_of(part, request)),
    };
    Document {
        session_id: session.id.as_str(),
        requests: sent.iter().enumerate().map(row).collect(),
        totals: totals(sent, breaks),
    }
}

fn part_of<'a>(part: &'a Break, request: &Sent) -> Part<'a> {
    let parting = part.parting.as_ref();
    Part {
        explained: part.is_explained(request),
        reason: part.reason(request),
        settings: &part.settings,
        unit: parting.map(|parting| parting.shared),
        byte: parting.map(|parting| parting.byte),
        offset: parting.map(|parting| parting.offset),
        was: parting.map(|parting| parting.was.as_str()),
        is: parting.map(|parting| parting.is.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use mainstay_agent::session::message::RequestMark;

    use super::*;

    fn sent(seq: Seq, shared: u32, before: Option<usize>, since: Vec<Event>) -> Sent {
        Sent {
            seq,
            lane: None,
            model: "p/m".to_owned(),
            mark: RequestMark { units: 3, hash: String::new(), shared, bytes: 900 },
            usage: Some(Usage {
                input_tokens: 200,
                cached_tokens: 150,
                output_tokens: 1,
                ..Usage::default()
            }),
            ended: "complete",
            since,
            before,
        }
    }

    fn units(last: &str) -> Vec<Vec<u8>> {
        ["tool", "system", last].map(|unit| unit.as_bytes().to_vec()).to_vec()
    }

    #[test]
    fn only_a_request_that_does_not_open_with_the_one_before_is_broken() {
        let requests = [
            sent(5, 0, None, vec![]),
            sent(7, 3, Some(0), vec![]),
            sent(9, 0, Some(1), vec![]),
            Sent { lane: Some("compaction".to_owned()), ..sent(11, 0, Some(2), vec![]) },
        ];
        let broken: Vec<bool> = (0..requests.len()).map(|place| is_broken(&requests, place)).collect();
        assert_eq!(broken, [false, false, true, false]);
    }

    #[test]
    fn a_break_without_a_reason_is_named_to_the_byte() {
        let requests = [sent(5, 0, None, vec![]), sent(7, 0, Some(0), vec![])];
        let parting = Parting::of(&units("hello you"), &units("hello me"));
        let part = Break { parting, settings: Vec::new() };
        assert_eq!(part.reason(&requests[1]), "nothing in the log explains it");
        assert_eq!(
            details(&requests, 1, &part),
            [
                "unit 3 of 3 differs from that of entry 5 in its byte 6 (byte 16 of the request's units)",
                "was: hello you",
                "is:  hello me",
            ]
        );
        let unknown = Break { parting: None, settings: Vec::new() };
        let told = details(&requests, 1, &unknown);
        assert!(told[0].starts_with("entries 5 and 7 cannot be built anew"), "{told:?}");
        let breaks = BTreeMap::from([(1, part)]);
        assert_eq!(
            summary(&totals(&requests, &breaks)),
            "2 requests; 1 of them with a broken prefix, 1 without a reason; 300 of 400 input tokens came from the \
             provider's cache (75 %)"
        );
    }

    #[test]
    fn a_break_that_the_log_explains_is_said_in_its_words() {
        let model = Event::Model { from: "a/m".to_owned(), to: "b/m".to_owned() };
        let request = sent(7, 0, Some(0), vec![model, Event::Damage]);
        let part = Break { parting: None, settings: vec!["images"] };
        let reason = "model changed: a/m → b/m; the log is damaged; setting changed: images";
        assert_eq!(part.reason(&request), reason);
    }
}
