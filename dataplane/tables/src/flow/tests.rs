//! Placeholder while the API settles; replaced by the next commit.
