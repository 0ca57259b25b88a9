"""What a person looks at: reports, the board, quarantined worlds, videos, and a policy in the browser.

`chart` draws curves and images, `shell` makes pages; static/ has their styles and the interactive diagrams' script.
"""
