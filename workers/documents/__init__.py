"""Images and PDFs as pages of pixels: opened in a process of their own, which a hostile file may take down alone."""
