// I have: rows of a task of GLUE, with their classes
// I want: RECLAIM with 30 % of the labels
// Tables 2 and 6, with K = 10.
(import "../reclaim_fraction.jsonnet") { label_fraction:: 0.3 }
