"""The language model that is trained, its tokenizer, and which architectures may share prefixes."""
