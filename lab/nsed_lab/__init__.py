"""The laboratory of nsed_torch: task families, lessons, studies; the library never imports it."""
