"""What three public articles on low-precision formats say, each statement computed (docs/claims.md is the page)."""
