package image

// BackEdges is backEdges.
var BackEdges = backEdges

// Fold is fold.
var Fold = fold

// Optional is optional.
var Optional = optional
