//! Result of a verification.

use serde_json::Value;

/// Result of a verification as text and as JSON; `holds` says whether everything was proven.
pub(crate) struct VerifyResult {
    pub(crate) text: String,
    pub(crate) json: Value,
    pub(crate) holds: bool,
}
