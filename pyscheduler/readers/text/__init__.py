"""What many readers share: text of terminals, JSON and XML, cut into what they need."""
