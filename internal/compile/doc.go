// Package compile turns a policy into what a target loads. Lower gives the policy its meaning, Optimize makes the
// program smaller without changing it, and a back end for each target generates code: ToXDP.
package compile
