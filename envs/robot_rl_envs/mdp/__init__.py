"""The library of terms. A term may call the functions of these modules that are marked `wp.func`."""
