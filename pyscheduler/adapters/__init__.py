"""One outside system each. They translate its errors and call the core; the core never calls them."""
