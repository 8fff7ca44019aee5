"""Arguments, references and errors of elementary functions, and the page that shows them."""
