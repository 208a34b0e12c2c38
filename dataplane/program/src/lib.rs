//! Placeholder of the tree; filled by the next commits.
