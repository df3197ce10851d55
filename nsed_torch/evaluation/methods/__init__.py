"""Ways to an answer that deliberation is compared with, through the same engines and the same token accounting."""
