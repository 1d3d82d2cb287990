//! poolcounterd
