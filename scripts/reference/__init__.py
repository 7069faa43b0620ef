"""The generated pages of docs/reference, one module for what is read together. Used by generate-reference."""
