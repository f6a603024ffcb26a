// Moved to labelled/sup_con.jsonnet; this path goes in 3.0.
import "labelled/sup_con.jsonnet"
