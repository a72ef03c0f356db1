"""What frameworks mean by what they log: one `LogFormat` each, found by the name it is registered under."""
