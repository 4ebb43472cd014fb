/** What an action returns if its result is new: the API then responds with 201. */
export class Created<Result> {
  readonly result: Result;

  constructor(result: Result) {
    this.result = result;
  }
}
