//! Obtains consent for a call: judges it, asks where somebody can be asked, and keeps what was granted.
//!
//! A grant is an entry of the log before the call runs. The question is withdrawn when the turn is cancelled. What an
//! edit would change is looked at again after the answer, for it may have been a long time coming.

use std::path::{Path, PathBuf};

use mainstay_session::entry::{Body, Grant};
use mainstay_session::log::AppendError;
use mainstay_session::message::ToolCall;
use mainstay_tools::subject::{Subject, preview, subject};
use mainstay_tools::{CallContext, Tool, ToolKind};
use tokio::sync::Mutex;

use crate::event::Event;
use crate::interceptor::Verdict;
use crate::permission::{Approval, ApprovalRequest, Approve, Approver, Denial, Judge, Judgement, Question};
use crate::setup::Setup;
use crate::shared::SharedLog;

/// Whether a call may run.
pub(crate) enum Consent {
    /// It may.
    Given,
    /// It may not, for a reason that the model reads.
    Denied(String),
    /// The turn was cancelled before anybody answered.
    Cancelled,
}

/// What consent is obtained with.
pub(crate) struct Asking<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) log: &'a SharedLog,
    /// Held while a question is open, so that there is one at a time.
    pub(crate) turn_to_ask: &'a Mutex<()>,
}

impl Asking<'_> {
    /// Obtains consent for a call with these arguments.
    ///
    /// # Errors
    ///
    /// A grant cannot be logged.
    pub(crate) async fn consent(
        &self,
        call: &ToolCall,
        tool: &dyn Tool,
        arguments: &str,
        context: &CallContext,
    ) -> Result<Consent, AppendError> {
        let about = subject(tool.kind(), arguments, context);
        self.warn_of_escape(tool, &about, context);
        let is_held = match tool.kind() {
            ToolKind::Command => self.setup.sandbox.is_enforced(|event| (self.setup.on_event)(event)).await,
            ToolKind::Read | ToolKind::Edit | ToolKind::Plan | ToolKind::Other => false,
        };
        let question = match self.judge(tool, &about, is_held) {
            Judgement::Allow => return Ok(Consent::Given),
            Judgement::Deny { rule } => return Ok(self.denied_by(&rule, tool, &about)),
            Judgement::Ask(question) => question,
        };
        let Some(approver) = &self.setup.approver else {
            return Ok(self.denied_unasked(question, tool, &about));
        };
        let _turn = self.turn_to_ask.lock().await;
        // A grant for the question before may answer this one.
        let question = match self.judge(tool, &about, is_held) {
            Judgement::Allow => return Ok(Consent::Given),
            Judgement::Deny { rule } => return Ok(self.denied_by(&rule, tool, &about)),
            Judgement::Ask(question) => question,
        };
        let name = tool.spec().name;
        let request = ApprovalRequest {
            call: call.clone(),
            about: shown(&about, &name, &context.workspace),
            why: question.why,
            diff: preview(&name, arguments, context),
            patterns: question.patterns,
            tool: name,
        };
        let answer = tokio::select! {
            biased;
            () = context.cancel.cancelled() => return Ok(Consent::Cancelled),
            answer = approver.ask(&request) => answer,
        };
        if let Approval::No { word } = answer {
            return Ok(Consent::Denied(refusal_of_the_user(&word)));
        }
        if subject(tool.kind(), arguments, context) != about {
            return Ok(Consent::Denied(
                "Not run: while the user was asked, its path came to lead elsewhere. Try again.".to_owned(),
            ));
        }
        self.keep(approver.as_ref(), &request, &answer)?;
        Ok(Consent::Given)
    }

    /// The user sees where a path leads out of the workspace, though the tool will refuse it.
    fn warn_of_escape(&self, tool: &dyn Tool, about: &Subject, context: &CallContext) {
        let Subject::Path { path, .. } = about else { return };
        let is_readable = |dir: &PathBuf| dir.canonicalize().is_ok_and(|dir| path.starts_with(dir));
        if !path.starts_with(&context.workspace) && !context.readable.iter().any(is_readable) {
            let name = tool.spec().name;
            let what = format!(
                "`{name}` was called with a path that leads out of the workspace: {}",
                path.display()
            );
            self.emit(Event::Warning(what));
        }
    }

    fn judge(&self, tool: &dyn Tool, about: &Subject, is_held: bool) -> Judgement {
        judge(self.setup, self.log, tool, about, is_held)
    }

    /// Logs what was granted, and has it kept where it is for the project.
    fn keep(
        &self,
        approver: &dyn Approver,
        request: &ApprovalRequest,
        answer: &Approval,
    ) -> Result<(), AppendError> {
        let lasts = !request.patterns.is_empty();
        let (scope, patterns) = match answer {
            Approval::Session if lasts => ("session", request.patterns.clone()),
            Approval::Project if lasts => ("project", request.patterns.clone()),
            Approval::Once | Approval::Session | Approval::Project | Approval::No { .. } => {
                (Grant::ONCE, vec![request.about.clone()])
            }
        };
        for pattern in patterns {
            let grant = Grant { tool: request.tool.clone(), pattern, scope: scope.to_owned() };
            self.log.append(Body::Grant(grant.clone()))?;
            if scope == "project"
                && let Err(why) = approver.keep(&grant)
            {
                self.emit(Event::Warning(format!("the permission holds for this session only: {why}")));
            }
        }
        self.log.sync()
    }

    fn denied_by(&self, rule: &str, tool: &dyn Tool, about: &Subject) -> Consent {
        let why = format!("the rule {rule} denies it");
        let reason = format!(
            "Permission denied: {why}. It will stay denied; go on without it, or say what you would have done."
        );
        self.tell(tool, about, Question { why, patterns: Vec::new(), rules: Vec::new(), is_of_mode: false });
        Consent::Denied(reason)
    }

    fn denied_unasked(&self, question: Question, tool: &dyn Tool, about: &Subject) -> Consent {
        let how = match (question.is_of_mode, question.rules.is_empty()) {
            (true, false) => {
                " unless the user starts the session with a rule that allows it or with `--approve all`"
            }
            (true, true) => " unless the user starts the session with `--approve all`",
            (false, _) => "",
        };
        let reason = format!(
            "Permission denied: {}, and nobody is here to be asked. It will stay denied{how}; go on without it, or say what \
             you would have done.",
            question.why
        );
        self.tell(tool, about, question);
        Consent::Denied(reason)
    }

    fn tell(&self, tool: &dyn Tool, about: &Subject, question: Question) {
        let name = tool.spec().name;
        let about = shown(about, &name, &self.setup.workspace);
        let passes_with_all = question.is_of_mode && self.setup.approve != Approve::All;
        self.emit(Event::Denied(Denial {
            tool: name,
            about,
            why: question.why,
            rules: question.rules,
            passes_with_all,
        }));
    }

    fn emit(&self, event: Event) {
        (self.setup.on_event)(&event);
    }
}

/// Why an interceptor denies a call, if one does.
pub(crate) fn denied_by_interceptor(setup: &Setup, call: &ToolCall) -> Option<String> {
    setup.interceptors.iter().find_map(|interceptor| match interceptor.pre_tool_call(call) {
        Verdict::Deny { reason } => Some(reason),
        Verdict::Allow => None,
    })
}

/// Why a call may not run without anyone being asked, for reads that the runtime makes by itself; none if it may.
pub(crate) fn refused_unasked(
    setup: &Setup,
    log: &SharedLog,
    tool: &dyn Tool,
    call: &ToolCall,
    arguments: &str,
    context: &CallContext,
) -> Option<String> {
    let about = subject(tool.kind(), arguments, context);
    denied_by_interceptor(setup, call).or_else(|| match judge(setup, log, tool, &about, false) {
        Judgement::Allow => None,
        Judgement::Deny { .. } => Some("Permission denied by a rule.".to_owned()),
        Judgement::Ask(_) => {
            Some("Nobody is asked about what the runtime reads by itself; it was not read.".to_owned())
        }
    })
}

/// `sandbox_is_enforced` matters for commands only.
fn judge(
    setup: &Setup,
    log: &SharedLog,
    tool: &dyn Tool,
    about: &Subject,
    sandbox_is_enforced: bool,
) -> Judgement {
    let grants = log.read(|state| state.grants.clone());
    let judge = Judge {
        approve: setup.approve,
        sandbox_is_enforced,
        rules: &setup.rules,
        grants: &grants,
        workspace: &setup.workspace,
    };
    judge.judge(&tool.spec().name, tool.kind(), about)
}

/// What a call is about, for people.
fn shown(about: &Subject, tool: &str, workspace: &Path) -> String {
    match about {
        Subject::Command(command) => command.clone(),
        Subject::Path { path, .. } => path.strip_prefix(workspace).unwrap_or(path).display().to_string(),
        Subject::Unknown => tool.to_owned(),
    }
}

fn refusal_of_the_user(word: &str) -> String {
    match word.trim() {
        "" => "The user denied this call. Do not try it again; ask what to do instead, or go on without it."
            .to_owned(),
        word => format!("The user denied this call and says: {word}"),
    }
}
