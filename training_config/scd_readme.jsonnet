// Moved to sentences/scd_readme.jsonnet; this path goes in 3.0.
import "sentences/scd_readme.jsonnet"
