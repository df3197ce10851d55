"""What a round may be: whole answers as published, steps of some work, or readings. One file each."""
