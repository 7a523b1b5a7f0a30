package xdp

// BackEdges is backEdges.
var BackEdges = backEdges
