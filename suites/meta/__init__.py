"""The suite tests itself."""
