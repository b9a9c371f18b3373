//! Error codes, and the text of the last error in each thread.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use bruckner_engine::Error;

/// Code of an internal error of the library: a panic is returned as this code instead of unwinding into C.
const INTERNAL: c_int = 99;

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::new(CString::default());
}

fn remember(text: &str) {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    LAST_ERROR.with(|last| *last.borrow_mut() = text);
}

pub(crate) fn guard(body: impl FnOnce() -> Result<(), Error>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => {
            remember(&error.to_string());
            error.code()
        }
        Err(_) => {
            remember("internal error of Bruckner: please report it");
            INTERNAL
        }
    }
}

/// # Safety
/// `text` is null or a C string.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Error> {
    if text.is_null() {
        return Ok("");
    }
    // SAFETY: ARGUMENTS.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Error::Argument("a string argument is not valid UTF-8".to_owned()))
}

/// Returns the text of an error code. Never returns null.
#[unsafe(no_mangle)]
pub extern "C" fn bruckner_error_text(code: c_int) -> *const c_char {
    let text: &'static CStr = match code {
        0 => c"success",
        1 => c"no MPI found, or its type is not supported",
        2 => c"MPI is not initialised, or is already finalised",
        3 => c"an MPI function failed",
        4 => c"invalid argument",
        5 => c"the operation is not allowed in the plan's state",
        6 => c"the library does not handle this communicator",
        INTERNAL => c"internal error of Bruckner",
        _ => c"not an error code of Bruckner",
    };
    text.as_ptr()
}

/// Returns the text of the last error in this thread. The text is valid until the next error in this thread.
#[unsafe(no_mangle)]
pub extern "C" fn bruckner_last_error() -> *const c_char {
    LAST_ERROR.with(|last| last.borrow().as_ptr())
}
