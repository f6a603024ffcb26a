// Moved to sentences/scd_self_contrast.jsonnet; this path goes in 3.0.
import "sentences/scd_self_contrast.jsonnet"
