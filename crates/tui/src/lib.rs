//! A terminal as the front end of an agent: the interface that most users live in.
//!
//! [`run`] takes over the terminal and drives an agent for the user in front of it. `app` is the interface as a value
//! that is changed by messages and says what is to be done, `view` what it looks like, `painter` how that gets on
//! the screen; `worker` owns the agent on a thread of its own. Nothing here reads configuration or the environment, or
//! knows what stands in a log: the [`Host`] and the agent tell.

mod text;
mod theme;
mod markdown;
mod highlight;
mod editor;
mod files;
mod transcript;
mod attachments;
mod commands;
mod app;
mod view;
mod painter;
mod store;
mod terminal;
mod worker;
mod run;

pub use app::ModelOffer;
pub use painter::Colours;
pub use run::{Left, Options, Start, run};
pub use worker::{Host, Prepared};
