"""What a pair does over a range of draft lengths, temperatures and sizes of passes."""
