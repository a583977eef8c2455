"""`logstore demo`: its input, its story, its words and pictures, and how it checks itself."""
