"""Generated from proto/ by proto/generate.sh. Not edited by hand."""
