//! One experiment as one JSON object: everything a report needs.
