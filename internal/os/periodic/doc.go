// Package periodic has what repeats: tasks that look again and again do so at the same times, and an answer is shared by
// all who ask the same at nearly the same time. It has no task of its own.
package periodic
