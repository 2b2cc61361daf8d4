"""UI files, as the editor saves them, turned into API graphs as the editor's `graphToPrompt` does."""
