// SPDX-License-Identifier: Apache-2.0

package image

// BackEdges is backEdges, for tests of other packages.
var BackEdges = backEdges

// Fold is fold, for tests of other packages.
var Fold = fold

// Optional is optional, for tests of other packages.
var Optional = optional
