/** Histories that a reader can start from. The documents link to them by their addresses. */

interface Example {
  title: string;
  /** Tells the reader where to look. */
  look: string;
  hash: string;
}

export const examples: readonly Example[] = [
  {
    title: "A window border inside an answer",
    look: "The request runs over the border at 5:00. Its charge takes what it held of the closed window first, and then credits of the next one. What nobody used of the closed window lapses.",
    hash: "request=0:30,0:30&request=4:00,2:30&request=8:45,3:00&at=5:15&show=request-2",
  },
  {
    title: "Overage, then purchased credits",
    look: "The requests spend base first, then overage, then the promotion, and the payment last. At each border the new window is spent first again.",
    hash: "request=0:15,4:30&request=5:00,9:45&request=15:15,7:00&request=25:30,6:00&payment=3:00,40&promotion=4:00,15,36:00&at=12:30&show=request-2",
  },
  {
    title: "A plan change in the middle of an answer",
    look: "The larger plan gives the present windows more credits at once, and the running request spends them. The change back to “small” waits for the end of the base window. On day 2 the plan “daily” is refused as a change at once, because its base window is longer. With new windows it works: the request keeps what it holds of the closed window, and takes the rest from the new one.",
    hash: "request=1:00,7:00&plan=3:00,large,now&plan=11:15,small,refresh&request=25:30,5:00&plan=26:30,daily,now&plan=27:45,daily,new_window&at=3:30&show=plan-1",
  },
  {
    title: "A crash in the middle of an answer",
    look: "The process dies while a request runs. The hold stays open for two hours after its last extension, then it expires: the last checkpoint is charged, and the rest returns. Drag the crash by a quarter of an hour, and see how many tokens cost nothing.",
    hash: "request=1:00,6:00&request=6:30,3:00&crash=3:00&at=4:00&show=request-1",
  },
  {
    title: "A refund of spent credits",
    look: "The request spends a part of the payment. A refund returns only what is neither spent nor held: the first one is refused, and the second one returns the rest. Drag the first one to the left, and it succeeds.",
    hash: "payment=0:30,60&request=1:00,11:30&refund=14:00,60,1&refund=17:00,14,1&at=14:30&show=refund-1",
  },
  {
    title: "Two answers that want the same credits",
    look: "Requests 1 and 2 want the last credits. Each waits for what the other one holds, until all of it is used. Request 3 is refused because running requests hold the credits, and request 4 because they are spent.",
    hash: "request=0:00,8:00&request=0:45,7:00&request=3:15,1:00&request=4:15,1:00&request=9:00,2:00&at=3:15&show=request-2",
  },
];
