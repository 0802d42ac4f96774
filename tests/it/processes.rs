//! processes.
