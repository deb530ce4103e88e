//! Runs the calls of one answer.
//!
//! Adjacent calls that only read run in parallel; every other call waits for those before it and is waited for by
//! those behind it. Each result is logged when its call ends, so a finished sibling survives a crash; the fold puts
//! them in order. A call that cannot run has a result too, one that helps.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join_all;
use mainstay_session::arguments::{clean_surrogates, object_text, parse_arguments};
use mainstay_session::entry::{Answer, Body, ToolIntent};
use mainstay_session::idleness;
use mainstay_session::ids::{CallRef, Seq};
use mainstay_session::log::AppendError;
use mainstay_session::lookalike::restore_arguments;
use mainstay_session::message::{FilePath, Finish, Outcome, ToolCall, ToolResult};
use mainstay_session::state::OpenCall;
use mainstay_tools::{CallContext, Jobs, OnOutput, StartedProcess, Tool, ToolError, ToolKind, ToolOutput};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::caps::Caps;
use crate::closing;
use crate::consent::{Asking, Consent, denied_by_interceptor};
use crate::event::{Event, plan_changes};
use crate::excerpt;
use crate::setup::Setup;
use crate::shared::SharedLog;

const FAILED_BEFORE: &str =
    "This very call has failed before. Do something else first: after a third failure the turn ends.";
const DENIED_BEFORE: &str =
    "This very call was denied before, and it will stay denied: after a third time the turn ends.";

/// What the calls of one answer are run with.
pub(crate) struct Dispatch<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) log: &'a SharedLog,
    pub(crate) jobs: &'a Arc<Jobs>,
    pub(crate) cancel: &'a CancellationToken,
    pub(crate) step: u64,
    /// Held while the user is asked about a call.
    pub(crate) turn_to_ask: Mutex<()>,
}

impl Dispatch<'_> {
    /// Runs the calls of the answer that stands at `seq`. On return every call has a result in the log.
    ///
    /// # Errors
    ///
    /// If a result cannot be logged; then no further call is begun.
    pub(crate) async fn run(&self, seq: Seq, answer: &Answer) -> Result<(), AppendError> {
        let calls: Vec<(CallRef, &ToolCall)> = (0u32..)
            .zip(answer.calls())
            .map(|(call, tool_call)| (CallRef { answer: seq, call }, tool_call))
            .collect();
        if let Some(fault) = why_none_may_run(answer) {
            for (call_ref, call) in &calls {
                let ended = Ended::unrun(Outcome::Error, fault.of(call));
                let result = self.finish(*call_ref, ended, self.log.read(Caps::of).result)?;
                self.tell(call, result);
            }
            return Ok(());
        }
        let caps = self.log.read(Caps::of);
        let (mut used, mut left) = (0, calls.len());
        for group in groups(&calls, |call| self.setup.kind_of(&call.name)) {
            let max = caps.next(used, left);
            let running = group.iter().map(|(call_ref, call)| self.run_call(*call_ref, call, max));
            for bytes in join_all(running).await {
                used += bytes?;
            }
            left -= group.len();
        }
        Ok(())
    }

    /// Runs one call, whose result may have about `max` bytes, and says how many it has.
    async fn run_call(&self, call_ref: CallRef, call: &ToolCall, max: usize) -> Result<usize, AppendError> {
        if self.cancel.is_cancelled() {
            let open = OpenCall { call_ref, call: call.clone(), intent: None, has_ended: false };
            let result = closing::never_begun(&open);
            self.log.append(Body::ToolResult(result.clone()))?;
            self.tell(call, result);
            return Ok(0);
        }
        self.emit(Event::ToolStarted { step: self.step, call: call.clone() });
        let before = self.log.read(|state| state.plan.clone());
        let ended = match self.admit(call) {
            Ok((tool, arguments)) => self.call_tool(call_ref, call, tool.as_ref(), &arguments, max).await?,
            Err(Refusal { outcome, reason }) => Ended::unrun(outcome, reason),
        };
        let ended = self.warned(call, ended);
        let result = self.finish(call_ref, ended, max)?;
        let bytes = result.summary.len() + result.content.as_ref().map_or(0, String::len);
        self.tell(call, result);
        let view = self.log.read(|state| state.plan.clone());
        if (&view.plan, view.carried) != (&before.plan, before.carried) {
            let changes = plan_changes(&before.plan, &view.plan);
            self.emit(Event::Plan { view, changes });
        }
        Ok(bytes)
    }

    /// Finds the tool, reads the arguments and asks the interceptors.
    fn admit(&self, call: &ToolCall) -> Result<(Arc<dyn Tool>, String), Refusal> {
        let wrong = |reason| Refusal { outcome: Outcome::Error, reason };
        let tool =
            self.setup.tool(&call.name).cloned().ok_or_else(|| wrong(self.unknown_tool(&call.name)))?;
        let arguments = object_text(&call.arguments)
            .map_err(|fault| wrong(format!("`{}` was not run: {fault}", call.name)))?;
        if let Some(fields) = missing_fields(&call.arguments, &tool.spec().schema) {
            return Err(wrong(format!(
                "`{}` was not run: it came without arguments and needs {fields}",
                call.name
            )));
        }
        let may_write = matches!(tool.kind(), ToolKind::Edit | ToolKind::Command);
        if may_write && clean_surrogates(&call.arguments) != call.arguments {
            return Err(wrong(format!(
                "`{}` was not run: its arguments hold half of a surrogate pair, which no file can hold; send whole characters",
                call.name
            )));
        }
        if tool.kind() == ToolKind::Plan && self.log.read(|state| state.idleness.refuses_plan_writes()) {
            return Err(wrong(idleness::REFUSAL.to_owned()));
        }
        if let Some(reason) = denied_by_interceptor(self.setup, call) {
            return Err(Refusal { outcome: Outcome::Denied, reason });
        }
        Ok((tool, restore_arguments(&arguments).into_owned()))
    }

    /// Runs a call, if there is consent. How long that was waited for is not in its duration.
    async fn call_tool(
        &self,
        call_ref: CallRef,
        call: &ToolCall,
        tool: &dyn Tool,
        arguments: &str,
        max: usize,
    ) -> Result<Ended, AppendError> {
        let context = CallContext {
            on_output: self.on_output(call),
            ..call_context(self.setup, self.log, self.jobs, self.cancel, call_ref, max)
        };
        let asking = Asking { setup: self.setup, log: self.log, turn_to_ask: &self.turn_to_ask };
        match asking.consent(call, tool, arguments, &context).await? {
            Consent::Given => {}
            Consent::Denied(reason) => return Ok(Ended::unrun(Outcome::Denied, reason)),
            Consent::Cancelled => {
                let reason =
                    "Interrupted: the turn was cancelled while the user was asked. It changed nothing.";
                return Ok(Ended::unrun(Outcome::Interrupted, reason.to_owned()));
            }
        }
        let begun = Instant::now();
        let ended = match tool.run(arguments, &context).await {
            Ok(output) => Ended::ok(output, tool.kind()),
            Err(error) if self.cancel.is_cancelled() => Ended::failed(Outcome::Interrupted, error),
            Err(error) => Ended::failed(Outcome::Error, error),
        };
        let millis = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(Ended { duration_ms: millis, ..ended })
    }

    /// Tells whoever listens what a call prints.
    fn on_output(&self, call: &ToolCall) -> OnOutput {
        let (on_event, step, call) = (self.setup.on_event.clone(), self.step, call.clone());
        Arc::new(move |lines: &str| {
            on_event(&Event::ToolOutput { step, call: call.clone(), lines: lines.to_owned() });
        })
    }

    /// Says of a call that leads nowhere, as the like before it did, what comes of repeating it.
    fn warned(&self, call: &ToolCall, mut ended: Ended) -> Ended {
        let (failures, idleness) = self.log.read(|state| (state.failures_in_a_row(call), state.idleness));
        let is_plan = self.setup.kind_of(&call.name) == Some(ToolKind::Plan);
        let warning = match ended.outcome {
            Outcome::Error if failures > 0 => FAILED_BEFORE,
            Outcome::Denied if failures > 0 => DENIED_BEFORE,
            Outcome::Ok if is_plan && idleness.warns_of_plan_writes() => idleness::WARNING,
            _ => return ended,
        };
        ended.content = Some(match ended.content {
            Some(content) => format!("{content}\n{warning}"),
            None => warning.to_owned(),
        });
        ended
    }

    /// Logs what a call brought.
    fn finish(&self, call_ref: CallRef, ended: Ended, max: usize) -> Result<ToolResult, AppendError> {
        // A tool keeps to its cap itself; this is for those that do not. Its own note on what it left out must not
        // count against it.
        let max = max + max / 4;
        let fit = |text: String, max| excerpt::fit(text, max, "This result", &self.log.lock());
        let summary = fit(ended.summary, max)?.0;
        let left = max.saturating_sub(summary.len());
        let content = ended.content.map(|text| fit(text, left)).transpose()?.map(|(text, _)| text);
        let result = ToolResult {
            images: ended.output.images,
            referenced_files: ended.output.referenced_files,
            changes: ended.output.changes,
            duration_ms: ended.duration_ms,
            exit_code: ended.output.exit_code,
            plan: ended.output.plan,
            ..ToolResult::new(call_ref, ended.outcome, summary, content)
        };
        self.log.append(Body::ToolResult(result.clone()))?;
        Ok(result)
    }

    fn tell(&self, call: &ToolCall, result: ToolResult) {
        for interceptor in &self.setup.interceptors {
            interceptor.post_tool_call(call, &result);
        }
        self.emit(Event::ToolCompleted { step: self.step, call: call.clone(), result });
    }

    fn emit(&self, event: Event) {
        (self.setup.on_event)(&event);
    }

    fn unknown_tool(&self, name: &str) -> String {
        let mut names: Vec<String> = self.log.read(|state| self.setup.offered(state));
        names.sort_by_key(|known| distance(&plain(name), known));
        let shown: String = name.chars().take(60).collect();
        format!("There is no tool named `{shown}`. The tools are, nearest first: {}.", names.join(", "))
    }
}

/// What a call is given to work with; its result may have about `max` bytes. Nobody looks on.
pub(crate) fn call_context(
    setup: &Setup,
    shared: &SharedLog,
    jobs: &Arc<Jobs>,
    cancel: &CancellationToken,
    call_ref: CallRef,
    max: usize,
) -> CallContext {
    let log = shared.clone();
    let seen = move |path: &Path| log.read(|state| state.seen.get(&FilePath(path.to_owned())).cloned());
    let log = shared.clone();
    let CallRef { answer, call } = call_ref;
    let intent = move |StartedProcess { pid, started, job }: StartedProcess| {
        let intent = ToolIntent { answer, call, pid, started, job };
        log.append(Body::ToolIntent(intent)).map(|_| ()).map_err(|error| error.to_string())
    };
    let spill = shared.lock().spill();
    let plan = shared.read(|state| state.plan.clone());
    CallContext {
        workspace: setup.workspace.clone(),
        readable: vec![spill.folder().to_owned(), jobs.folder().to_owned()],
        plan,
        seen: Arc::new(seen),
        intent: Arc::new(intent),
        jobs: jobs.clone(),
        spill,
        takes_images: setup.model.takes_images(),
        max_result_bytes: max,
        on_output: Arc::new(|_| {}),
        cancel: cancel.clone(),
    }
}

/// Why a call was not run.
struct Refusal {
    outcome: Outcome,
    reason: String,
}

/// What a call brought, before it is logged.
struct Ended {
    outcome: Outcome,
    summary: String,
    content: Option<String>,
    output: ToolOutput,
    duration_ms: u64,
}

impl Ended {
    fn ok(output: ToolOutput, kind: ToolKind) -> Self {
        // Only the plan tool writes the plan, whatever another one says.
        let plan = output.plan.filter(|_| kind == ToolKind::Plan);
        let output = ToolOutput { plan, ..output };
        Ended {
            outcome: Outcome::Ok,
            summary: output.summary.clone(),
            content: output.content.clone(),
            output,
            duration_ms: 0,
        }
    }

    fn failed(outcome: Outcome, error: ToolError) -> Self {
        let output = ToolOutput { exit_code: error.exit_code, ..ToolOutput::default() };
        Ended { outcome, summary: error.summary, content: error.content, output, duration_ms: 0 }
    }

    fn unrun(outcome: Outcome, summary: String) -> Self {
        Ended { outcome, summary, content: None, output: ToolOutput::default(), duration_ms: 0 }
    }
}

/// Why no call of an answer may run.
enum NoneMayRun {
    /// The output limit cut the answer.
    Cut,
    /// The provider ended it as refused.
    Refused,
    /// Some call's arguments cannot be read.
    Unreadable,
}

fn why_none_may_run(answer: &Answer) -> Option<NoneMayRun> {
    match answer.finish {
        Finish::MaxTokens => Some(NoneMayRun::Cut),
        Finish::Refusal => Some(NoneMayRun::Refused),
        Finish::EndTurn | Finish::ToolCalls | Finish::Unknown => answer
            .calls()
            .any(|call| parse_arguments(&call.arguments).is_err())
            .then_some(NoneMayRun::Unreadable),
    }
}

impl NoneMayRun {
    /// What the model reads for one of the calls.
    fn of(&self, call: &ToolCall) -> String {
        match (self, parse_arguments(&call.arguments)) {
            (NoneMayRun::Cut, _) => {
                "Not run: the output limit cut the answer. Send smaller calls, one at a time; write a large file in \
                 several edits."
                    .to_owned()
            }
            (NoneMayRun::Refused, _) => "Not run: the provider ended the answer as refused.".to_owned(),
            (NoneMayRun::Unreadable, Err(fault)) => {
                format!("`{}` was not run: {fault}", call.name)
            }
            (NoneMayRun::Unreadable, Ok(_)) => {
                "Not run: the arguments of another call in the same answer could not be read. Send this one again."
                    .to_owned()
            }
        }
    }
}

/// The fields that a tool demands, if a call came without any arguments. One that came with some is the tool's matter,
/// which knows by which other names a field may come.
fn missing_fields(arguments: &str, schema: &str) -> Option<String> {
    if !matches!(arguments.trim(), "" | "null") {
        return None;
    }
    let schema: serde_json::Value = serde_json::from_str(schema).ok()?;
    let required = schema.get("required")?.as_array()?;
    let names: Vec<String> =
        required.iter().filter_map(|name| Some(format!("`{}`", name.as_str()?))).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Splits calls into groups: a run of adjacent reads is one, every other call is one of its own.
fn groups<'a>(
    calls: &'a [(CallRef, &'a ToolCall)],
    kind: impl Fn(&ToolCall) -> Option<ToolKind>,
) -> Vec<&'a [(CallRef, &'a ToolCall)]> {
    let reads = |call: &ToolCall| kind(call) == Some(ToolKind::Read);
    calls.chunk_by(|(_, a), (_, b)| reads(a) && reads(b)).collect()
}

/// A tool's name without what models put around it: `functions.read` and `Read file` mean `read`.
fn plain(name: &str) -> String {
    let last = name.rsplit(['.', '/', ':']).next().unwrap_or(name);
    last.chars().take(60).flat_map(char::to_lowercase).collect()
}

/// How many characters must be put in, left out or changed to make `a` into `b`.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}
