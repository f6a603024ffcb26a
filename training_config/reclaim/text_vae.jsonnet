// I have: texts, one a line
// I want: a text VAE that writes sentences
// An LSTM to a normal code and one back, on the Penn Treebank as published; corpus:: "yelp" or "yahoo".
import "text_vae.libsonnet"
