//! What the built-in kinds need beyond their schema: defaults, validation, preparation, printed columns.
