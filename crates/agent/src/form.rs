//! The form that a turn's answer must have.

use std::sync::Arc;

use mainstay_session::lookalike::runtime_block;

/// Says what of an answer's text is not as it must be.
pub type FormCheck = Arc<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// The form that a turn's answer must have. The model is told of it before the prompt, and again, with what is wrong, where
/// its answer does not have it.
#[derive(Clone)]
pub struct AnswerForm {
    /// What the model is told: what form, and all it needs to keep to it.
    pub told: String,
    /// Looks at the answer that would end the turn.
    pub check: FormCheck,
    /// How often in a turn the model is asked again.
    pub again: u32,
}

impl AnswerForm {
    /// What stands before the prompt.
    pub(crate) fn beforehand(&self) -> String {
        runtime_block(&self.told)
    }

    /// What stands behind an answer that does not have the form.
    pub(crate) fn misfit(&self, why: &str) -> String {
        runtime_block(&format!(
            "Your answer does not have the form that it must have: {why}\nAnswer again, in that form alone.\n\n{}",
            self.told
        ))
    }
}
