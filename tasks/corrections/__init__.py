"""What llama.cpp's server gets wrong for an OpenAI client, and how it is put right: `table.py` has the list."""
