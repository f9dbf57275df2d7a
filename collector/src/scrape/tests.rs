//! Scraping against a small server that misbehaves in every way.
