//! What proofs come to.

use serde_json::Value;

/// What was found, as text or for programs; and what it comes to.
pub(crate) struct Found {
    pub(crate) text: String,
    pub(crate) json: Value,
    pub(crate) holds: bool,
}
